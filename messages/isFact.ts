/** Separates facts from commands: a state is folded from facts alone. */
import type { Fact } from './facts'
import { commandShapes } from './shapes/command'
import type { Message } from './topics'

export const isFact = (message: Message): message is Fact => !Object.hasOwn(commandShapes, message.type)
