/**
 * Results that the paper prints for each benchmark (arXiv 2508.20722, Tables 2 to 5, §5.2). Reports show them beside a
 * result.
 */
export interface Printed {
  readonly model: string
  /** Score that the paper prints, in %. */
  readonly accuracy: number
  /** Mean number of response tokens, if the paper prints it. */
  readonly tokens?: number
}

export const printed: Readonly<Record<string, readonly Printed[]>> = {
  aime24: [
    { model: 'rStar2-Agent-14B', accuracy: 80.6, tokens: 9339.7 },
    { model: 'Qwen3-14B', accuracy: 79.3, tokens: 14_747.6 },
    { model: 'DeepSeek-R1', accuracy: 79.8 },
    { model: 'DeepSeek-R1-Zero', accuracy: 71.0, tokens: 14_246.8 },
    { model: 'QwQ-32B', accuracy: 79.5, tokens: 11_868.4 },
    { model: 'o3-mini (medium)', accuracy: 79.6 },
  ],
  aime25: [
    { model: 'rStar2-Agent-14B', accuracy: 69.8, tokens: 10_943.4 },
    { model: 'Qwen3-14B', accuracy: 70.4, tokens: 17_521.9 },
    { model: 'DeepSeek-R1', accuracy: 70.0 },
    { model: 'DeepSeek-R1-Zero', accuracy: 53.3, tokens: 17_132.9 },
    { model: 'QwQ-32B', accuracy: 65.8, tokens: 15_865.4 },
    { model: 'o3-mini (medium)', accuracy: 77.0 },
  ],
  hmmt25: [
    { model: 'rStar2-Agent-14B', accuracy: 52.7 },
    { model: 'Qwen3-14B', accuracy: 48.9 },
    { model: 'DeepSeek-R1', accuracy: 44.4 },
    { model: 'DeepSeek-R1-Zero', accuracy: 46.0 },
    { model: 'QwQ-32B', accuracy: 47.5 },
    { model: 'o3-mini (medium)', accuracy: 53.0 },
  ],
  math500: [
    { model: 'rStar2-Agent-14B', accuracy: 97.8 },
    { model: 'Qwen3-14B', accuracy: 96.8 },
    { model: 'DeepSeek-R1', accuracy: 97.3 },
    { model: 'DeepSeek-R1-Zero', accuracy: 95.9 },
    { model: 'QwQ-32B', accuracy: 98.0 },
    { model: 'o3-mini (medium)', accuracy: 98.0 },
  ],
  gsm8k: [],
  gpqa: [
    { model: 'rStar2-Agent-14B', accuracy: 60.9 },
    { model: 'rStar2-Agent-14B after SFT', accuracy: 42.1 },
    { model: 'DeepSeek-V3', accuracy: 59.1 },
  ],
  bfcl: [
    { model: 'rStar2-Agent-14B', accuracy: 60.8 },
    { model: 'rStar2-Agent-14B after SFT', accuracy: 63.1 },
    { model: 'DeepSeek-V3', accuracy: 57.6 },
  ],
  ifeval: [
    { model: 'rStar2-Agent-14B', accuracy: 83.4 },
    { model: 'rStar2-Agent-14B after SFT', accuracy: 83.7 },
    { model: 'DeepSeek-V3', accuracy: 86.1 },
  ],
  'arena-hard': [
    { model: 'rStar2-Agent-14B', accuracy: 86.6 },
    { model: 'rStar2-Agent-14B after SFT', accuracy: 86.8 },
    { model: 'DeepSeek-V3', accuracy: 85.5 },
  ],
}
