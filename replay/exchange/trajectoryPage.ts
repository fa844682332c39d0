/**
 * Renders a trajectory as one self-contained HTML page, without scripts, network access or font files.
 *
 * in   a trajectory's accepted facts, token texts, optionally tokens to highlight        out  the page's HTML
 * Invariant: everything that a model, a tool or a task wrote is escaped, and the page's content security policy forbids
 * scripts and loads, so the browser shows that text and executes none of it.
 */
import { createHash } from 'node:crypto'
import { callTree } from '../../kernels'
import { escapeForTerminal } from '../../runtime/escapeForTerminal'
import { placeOfCall } from '../placeOfCall'
import type { TokenTexts } from '../tokens/tokenTexts'
import { addedTexts } from '../trajectories/addedTexts'
import { toolCallsOf } from '../trajectories/toolCalls'
import { callFactsIn, factsIn, isCaptured, selectionOf, type Trajectory } from '../trajectories/trajectory'
import { withoutEnd } from './exportedTrajectory'

const style = `
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.2rem}h2{font-size:1rem;margin:1.5rem 0 .3rem}table{border-collapse:collapse}td{padding:.1rem .8rem .1rem 0;vertical-align:top}
pre,.tokens{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext;background:#f6f6f4;padding:.6rem;border-left:3px solid #bbb;margin:.3rem 0;font:13px/1.5 ui-monospace,monospace}
.model{border-color:#3a7bd5}.ok{border-color:#3a9d5d}.bad{border-color:#c0392b}.p0{background:#f3b0a8}.p1{background:#f8d9a8}.p2{background:#f5f1b8}
.tokens span{outline:1px solid #0001}.tokens .top{outline:2px solid #7b2d8b;font-weight:600}summary{cursor:pointer;color:#555}
`
const styleHash = createHash('sha256').update(style).digest('base64')

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Escapes text for the page: markup becomes text; control and bidirectional characters become visible escapes. */
const escapeForPage = (text: string): string => escapeForTerminal(text).replace(/[&<>"']/g, c => escapes[c]!)

const e = escapeForPage

/**
 * Tokens to highlight. `top`: their indices among the sampled tokens. `values`: for every sampled token the value of
 * `measure`, such as entropy. `turns`: for every sampled token its turn, or its call in a captured session.
 */
export interface Marked {
  readonly top: ReadonlySet<number>
  readonly values: readonly number[]
  readonly turns: readonly number[]
  readonly measure: string
}

export function trajectoryPage(run: string, trajectory: Trajectory, texts: TokenTexts, marked?: Marked): string {
  const { request, finished, reward } = trajectory
  const { selection, advantage, penalty } = selectionOf(trajectory)
  const rows: readonly (readonly [string, string])[] = [
    ['run', run],
    ['task', `${request.task.id}, truth ${request.task.truth}`],
    ['purpose', `${request.purpose}, step ${request.step}`],
    ['outcome', finished === null ? 'running' : `${finished.outcome} (${finished.reason})`],
    ['reward', reward === null ? '–' : `${reward.reward}, answer '${reward.answer}' (${reward.how})`],
    [
      'selection',
      selection === null
        ? '–'
        : `${selection}${advantage === null ? '' : `, advantage ${advantage.toFixed(4)}`}${penalty === null ? '' : `, penalty ${penalty.toFixed(3)}`}`,
    ],
  ]
  const title = `${trajectory.id} of ${run}`
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-${styleHash}'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<title>${e(title)}</title><style>${style}</style></head><body>
<h1>${e(title)}</h1>
<table>${rows.map(([name, value]) => `<tr><td>${e(name)}</td><td>${e(value)}</td></tr>`).join('')}</table>
${request.task.messages.map(m => `<h2>${e(m.role)}</h2><pre>${e(m.content)}</pre>`).join('\n')}
${isCaptured(trajectory) ? calls(trajectory, texts, marked) : turns(trajectory, texts, marked)}
</body></html>
`
}

/** Renders a captured session: each call with the messages that it added, and its answer. */
function calls(trajectory: Trajectory, texts: TokenTexts, marked: Marked | undefined): string {
  const parts: string[] = []
  for (const { started, finished } of callTree(callFactsIn(trajectory)).nodes.values()) {
    parts.push(`<h2>${e(placeOfCall(started))}</h2>`)
    for (const { role, text } of addedTexts(started)) parts.push(`<h2>${e(role)}</h2><pre>${e(text)}</pre>`)
    if (finished === null) continue
    // Either all tokens of a call have values, or none of them has one.
    const from = marked?.turns.indexOf(started.call) ?? -1
    const own = from < 0 ? undefined : marked
    const answer = finished.finish === 'failed' ? finished.error : withoutEnd(finished.text)
    const versions = [...new Set(finished.segments.map(s => s.policyVersion))].join(', ')
    parts.push(
      `<h2>answer of call ${started.call}: ${finished.tokens.length} tokens, policy ${e(versions)}, ${e(finished.finish)}</h2>`,
      `<pre class="${finished.finish === 'failed' ? 'bad' : 'model'}">${e(answer)}</pre>`,
      tokenDetails(tokens(finished.tokens, finished.logprobs, texts, from, own), own),
    )
  }
  return parts.join('\n')
}

const tokenDetails = (spans: string, marked: Marked | undefined): string =>
  `<details${marked === undefined ? '' : ' open'}><summary>tokens with their logprobs${marked === undefined ? '' : `; framed: the top by ${e(marked.measure)}`}</summary><div class="tokens">${spans}</div></details>`

function turns(trajectory: Trajectory, texts: TokenTexts, marked: Marked | undefined): string {
  let sampled = 0
  const calls = toolCallsOf(trajectory)
  const parts: string[] = []
  let pieces: string[] = []
  for (const fact of factsIn(trajectory)) {
    if (fact.type === 'turn.interrupted') {
      pieces.push(tokens(fact.tokens, fact.logprobs, texts, sampled, marked))
      sampled += fact.tokens.length
      parts.push(`<p>turn ${fact.turn} was interrupted after ${fact.tokens.length} tokens: ${e(fact.reason)}</p>`)
    }
    if (fact.type !== 'turn.completed') continue
    pieces.push(tokens(fact.tokens, fact.logprobs, texts, sampled, marked))
    sampled += fact.tokens.length
    const versions = [...new Set(fact.segments.map(s => s.policyVersion))].join(', ')
    parts.push(
      `<h2>turn ${fact.turn}: ${fact.tokens.length} tokens, policy ${e(versions)}, ${e(fact.finish)}</h2>`,
      `<pre class="model">${e(withoutEnd(fact.text))}</pre>`,
      tokenDetails(pieces.join(''), marked),
    )
    pieces = []
    for (const call of calls.filter(c => c.turn === fact.turn)) {
      const how = call.status === 'ok' ? 'ok' : 'bad'
      const took = call.ran ? `, ${call.wallMs.toFixed(0)} ms` : ''
      parts.push(
        `<h2>${e(call.tool || 'unreadable call')}: ${e(call.status)}${took}</h2><pre class="${how}">${e(call.text)}</pre>`,
      )
    }
  }
  return parts.join('\n')
}

/**
 * Renders tokens as spans, coloured by the probability of the token: red below 0.1, orange below 0.5, yellow below 0.9,
 * no colour from 0.9 on. Hovering shows id and logprob. `from`: number of the trajectory's sampled tokens before `ids`.
 */
function tokens(
  ids: Int32Array,
  logprobs: Float32Array,
  texts: TokenTexts,
  from: number,
  marked: Marked | undefined,
): string {
  return [...ids]
    .map((id, i) => {
      const logprob = logprobs[i] ?? Number.NaN
      const probability = Math.exp(logprob)
      const shade = probability < 0.1 ? 'p0' : probability < 0.5 ? 'p1' : probability < 0.9 ? 'p2' : ''
      const classes = [shade, marked?.top.has(from + i) ? 'top' : ''].filter(name => name !== '').join(' ')
      const value = marked === undefined ? '' : `, ${marked.measure} ${(marked.values[from + i] ?? 0).toFixed(3)}`
      const title = e(`${id}, logprob ${logprob.toFixed(3)}${value}`)
      return `<span${classes === '' ? '' : ` class="${classes}"`} title="${title}">${e(texts(id) ?? `<${id}>`)}</span>`
    })
    .join('')
}
