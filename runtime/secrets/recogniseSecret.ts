/**
 * Decides by its name and its value whether a variable, a header or a parameter of a URL holds a secret.
 *
 * in   a name, a value        out  true for a secret
 * Invariant: a setting (a number, a switch, `auto`), the path of an existing file or a list of paths with one that
 * exists is none, whatever its name is: errors and the results of tools would lose ordinary words and places.
 */
import { existsSync } from 'node:fs'
import { delimiter, isAbsolute } from 'node:path'

/** Ends of names (`OPENAI_API_KEY`, `PGPASSWORD`, `npm_config__authToken`), before a number as in `API_KEY_1`. */
const secretName =
  /((^|[_-])(auth|authorization|cookies?|credentials?|jwt|key|pass|pat|pwd|secrets|sig|signature|token)|(api|access|private|secret|auth)[_-]?(keys?|tokens?)|secret[_-]?key[_-]base|passwords?|passwd|passphrases?|secret)([_-]?\d+)?$/i
/** Names that say whether something is used: `ENABLE_AUTH`, `USE_API_KEY`, `APP_REQUIRE_TOKEN`. */
const switchName =
  /^(allow|disable|enable|require|skip|use)[ds]?[_-]|[_-](allow|disable|enable|require|skip|use)[ds]?[_-][a-z0-9]+$/i
const setting =
  /^([+-]?\d{1,15}(\.\d*)?(e[+-]?\d+)?|true|false|yes|no|on|off|enabled?|disabled?|none|null|nil|undefined|auto|automatic|default|always|never|required|optional|basic|bearer)$/i

export const isSecret = (name: string, value: string): boolean =>
  secretName.test(name) && !switchName.test(name) && !setting.test(value.trim()) && !isPath(value)

/** Returns the secrets in a list, as a variable whose name is a plural holds it: `API_KEYS=one,two`. */
export const secretsIn = (name: string, value: string): readonly string[] =>
  /(keys|tokens|secrets|passwords)([_-]?\d+)?$/i.test(name) && !/["'{}]/.test(value)
    ? value.split(/[\s,;]+/).filter(one => isSecret(name, one))
    : []

/**
 * True for a value that no person chose: a UUID, or at least 16 letters and digits in a row, of both kinds. Names of
 * hosts, models and versions have shorter parts; credentials.ts takes addresses apart.
 */
export const looksRandom = (value: string): boolean =>
  !/[\s/]/.test(value) &&
  (/(?<![a-z0-9])(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{16,}/i.test(value) ||
    /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/i.test(value))

/** True for the absolute path of an existing file, or for a list of paths that contains one, as in PATH. */
const isPath = (value: string): boolean =>
  value.split(delimiter).some(part => isAbsolute(part) && part.length > 1 && existsSync(part))
