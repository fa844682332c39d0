/** Separates facts from commands: actors rebuild their state only from facts. */
import type { Fact } from './facts'
import { commandShapes } from './shapes/command'
import type { Message } from './topics'

export const isFact = (message: Message): message is Fact => !Object.hasOwn(commandShapes, message.type)
