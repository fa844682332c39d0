/** Writes a GatewayError in the form of OpenAI's errors. */
import type { GatewayError, RefusalKind } from '../gatewayError'

const types: Readonly<Record<RefusalKind, string>> = {
  invalid: 'invalid_request_error',
  unauthorized: 'authentication_error',
  forbidden: 'permission_error',
  'not-found': 'not_found_error',
  conflict: 'conflict_error',
  'too-large': 'invalid_request_error',
  slow: 'invalid_request_error',
  busy: 'rate_limit_error',
  internal: 'server_error',
  unavailable: 'service_unavailable_error',
}

export const openaiError = ({ kind, code, message, param }: GatewayError) => ({
  error: { message, type: types[kind], param: param ?? null, code },
})
