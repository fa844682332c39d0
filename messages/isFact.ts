/** Tells what has happened from what is to be done: a state is folded from the former alone. */
import type { Fact } from './facts'
import { commandShapes } from './shapes/command'
import type { Message } from './topics'

export const isFact = (message: Message): message is Fact => !Object.hasOwn(commandShapes, message.type)
