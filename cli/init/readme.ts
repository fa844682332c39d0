/** The README of a new project: what to run, and which file to change for what. */
/** Language of a new project. */
export type Language = 'yaml' | 'python' | 'ts'

const parts = {
  yaml: { recipe: 'recipe.yaml', tool: 'tools.py', reward: 'reward.py', test: 'python3 -m unittest' },
  python: { recipe: 'recipe.py', tool: 'recipe.py', reward: 'recipe.py', test: 'python3 -m unittest' },
  ts: { recipe: 'recipe.ts', tool: 'recipe.ts', reward: 'recipe.ts', test: 'node --test' },
} as const

export function readme(language: Language): string {
  const { recipe, tool, reward, test } = parts[language]
  return `# Prices

    npx troupe check       # everything that is wrong with ${recipe}, at once
    npx troupe train       # imitates demonstrations.jsonl, then learns by trying
    npx troupe replay ls   # what it tried; replay show ID shows one try
    ${test}

Your own: problems in problems.jsonl (\`{"problem", "answer"}\` a line), the tool in ${tool}, the reward in ${reward},
model and numbers in ${recipe}. With a model that can call tools, take the cold start and demonstrations.jsonl out.
`
}
