/**
 * The shape and the schema version of every message. A field or a literal that a type has and this table has not (or the
 * other way round) fails to compile; a type of message that is missing here does too.
 *
 * To change a message: add the field here and in its type, raise `version`, and write the step in upcast/.
 */
import type { MessageType } from '../topics'
import { commandShapes } from './command'
import { learnerShapes } from './learner'
import type { ShapesOf } from './parts'
import { runShapes } from './run'
import { trajectoryShapes } from './trajectory'

export const shapes = {
  ...trajectoryShapes,
  ...learnerShapes,
  ...runShapes,
  ...commandShapes,
} as const satisfies ShapesOf<MessageType>
