/**
 * The shape and the schema version of every message. The compiler refuses a table that differs from the interfaces in
 * facts/ and commands.ts by a message, a field or a literal.
 *
 * To change a message: add the field here and in its interface, raise `version`, and write the upcast in upcast/. A new
 * optional field needs neither version nor upcast.
 */
import type { MessageType } from '../topics'
import { callShapes } from './calls'
import { commandShapes } from './command'
import { learnerShapes } from './learner'
import type { ShapesOf } from './parts'
import { runShapes } from './run'
import { trajectoryShapes } from './trajectory'

export const shapes = {
  ...trajectoryShapes,
  ...callShapes,
  ...learnerShapes,
  ...runShapes,
  ...commandShapes,
} as const satisfies ShapesOf<MessageType>
