/**
 * Draws swimlanes on a canvas, and finds what lies under the pointer.
 *
 * in   lanes, marks, a width        out  pixels; the lane and piece at a point
 */
import type { Lane, LanePiece, Mark } from '../../api'

export const laneHeight = 13
export const laneTop = 30
const labelWidth = 130

export interface Picture {
  readonly lanes: readonly Lane[]
  readonly marks: readonly Mark[]
  readonly from: number
  readonly to: number
  readonly width: number
}

export function pictureOf(lanes: readonly Lane[], marks: readonly Mark[], width: number): Picture {
  const from = Math.min(...lanes.map(({ pieces }) => pieces[0]?.from ?? Number.POSITIVE_INFINITY))
  const to = Math.max(...lanes.map(({ endsAt }) => endsAt))
  const isEmpty = !(to > from)
  return { lanes, marks, width, from: isEmpty ? 0 : from, to: isEmpty ? 1 : to }
}

const xOf = ({ from, to, width }: Picture, at: number): number =>
  labelWidth + ((at - from) / (to - from)) * (width - labelWidth - 8)

export function laneAt(
  picture: Picture,
  x: number,
  y: number,
): { lane: Lane; piece: LanePiece | undefined } | undefined {
  const lane = picture.lanes[Math.floor((y - laneTop) / laneHeight)]
  if (lane === undefined || y < laneTop) return undefined
  const under = lane.pieces.filter(
    ({ from, to }) => x >= xOf(picture, from) && x <= Math.max(xOf(picture, to), xOf(picture, from) + 2),
  )
  // Calls that ran in parallel overlap. The shortest piece is chosen, since it is the hardest to point at.
  const [first] = under.sort((a, b) => a.to - a.from - (b.to - b.from))
  return { lane, piece: first }
}

/** Distance between two ticks of the time axis in ms: a round number, at least an eighth of the axis. */
function tickMs(span: number): number {
  const rough = span / 8
  const power = 10 ** Math.floor(Math.log10(rough))
  return ([1, 2, 5, 10].find(factor => factor * power >= rough) ?? 10) * power
}

export function drawLanes(canvas: HTMLCanvasElement, picture: Picture, colour: (name: string) => string): void {
  const ratio = devicePixelRatio || 1
  const height = laneTop + picture.lanes.length * laneHeight + 8
  canvas.width = Math.round(picture.width * ratio)
  canvas.height = Math.round(height * ratio)
  const context = canvas.getContext('2d')
  if (context === null) return
  context.scale(ratio, ratio)
  context.font = '11px ui-monospace, monospace'
  context.textBaseline = 'middle'
  drawAxis(context, picture, height, colour)
  picture.lanes.forEach((lane, i) => {
    const y = laneTop + i * laneHeight
    context.fillStyle = colour(lane.reward === null ? 'dim' : lane.positive ? 'good' : 'bad')
    context.fillRect(labelWidth - 8, y + 2, 3, laneHeight - 4)
    context.fillStyle = colour('dim')
    context.fillText(lane.trajectory, 4, y + laneHeight / 2, labelWidth - 16)
    context.globalAlpha = lane.selection === 'dropped' || lane.selection === 'rejected' ? 0.55 : 1
    for (const piece of lane.pieces) {
      const x = xOf(picture, piece.from)
      const isThin = piece.kind === 'queue' || piece.kind === 'wait'
      context.fillStyle = colour(
        piece.bad
          ? 'bad'
          : piece.kind === 'generation'
            ? `policy${Math.abs(piece.version ?? 0) % 6}`
            : `lane-${piece.kind}`,
      )
      context.fillRect(
        x,
        y + (isThin ? 5 : 2),
        Math.max(1, xOf(picture, piece.to) - x),
        isThin ? laneHeight - 10 : laneHeight - 4,
      )
    }
    context.globalAlpha = 1
  })
  drawMarks(context, picture, height, colour)
}

function drawAxis(
  context: CanvasRenderingContext2D,
  picture: Picture,
  height: number,
  colour: (name: string) => string,
): void {
  const every = tickMs(picture.to - picture.from)
  for (let ms = 0; ms <= picture.to - picture.from; ms += every) {
    const x = xOf(picture, picture.from + ms)
    context.fillStyle = colour('line')
    context.fillRect(x, 18, 1, height - 18)
    context.fillStyle = colour('dim')
    context.fillText(every >= 1000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms)} ms`, x + 3, 10)
  }
}

const markColours: Readonly<Partial<Record<Mark['kind'], string>>> = {
  'engine-left': 'bad',
  resumed: 'warn',
  alarm: 'warn',
  weights: 'accent',
}

function drawMarks(
  context: CanvasRenderingContext2D,
  picture: Picture,
  height: number,
  colour: (name: string) => string,
): void {
  for (const mark of picture.marks) {
    const name = markColours[mark.kind]
    if (name === undefined) continue
    context.fillStyle = colour(name)
    context.fillRect(xOf(picture, mark.at), 18, mark.kind === 'weights' ? 1 : 2, height - 18)
    context.fillText(mark.kind === 'weights' ? '↻' : mark.kind, xOf(picture, mark.at) + 3, 22)
  }
}
