/** Links between the pages of README and docs/ lead to files and headings that are there; pages are short. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'

const root = join(__dirname, '..')
const pages = [
  'README.md',
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.md'))
    .map(name => `docs/${name}`),
]
const text = (file: string) => readFileSync(file, 'utf8')
const withoutCode = (page: string) => page.replace(/^```[\s\S]*?^```/gm, '')

/** The name that GitHub gives a heading. */
const anchor = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replaceAll(' ', '-')

const anchorsOf = (file: string) =>
  [...withoutCode(text(file)).matchAll(/^#+ (.*)$/gm)].map(([, heading]) => anchor(heading!))

test.each(pages)('%s: every link to a file or a heading of the repository leads there', page => {
  const file = join(root, page)
  const broken = [...withoutCode(text(file)).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, link]) => link!)
    .filter(link => !/^[a-z]+:/.test(link))
    .filter(link => {
      const [path = '', heading] = link.split('#')
      const target = path === '' ? file : resolve(dirname(file), path)
      if (!existsSync(target)) return true
      return heading !== undefined && target.endsWith('.md') && !anchorsOf(target).includes(heading)
    })
  expect(broken).toEqual([])
})

test('no page has more than 300 lines', () => {
  const lines = (page: string) => text(join(root, page)).trimEnd().split('\n').length
  expect(pages.filter(page => !page.includes('/experiments/') && lines(page) > 300)).toEqual([])
})

test('links of llms.txt lead there; it or the index by task names every page of docs/', () => {
  const links = [...text(join(root, 'llms.txt')).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link!)
  expect(links.filter(link => !existsSync(join(root, link)))).toEqual([])
  expect(links).toContain('docs/README.md')
  const index = text(join(root, 'docs/README.md'))
  const own = readdirSync(join(root, 'docs')).filter(name => name.endsWith('.md') && name !== 'README.md')
  expect(own.filter(name => !index.includes(`(${name}`) && !links.includes(`docs/${name}`))).toEqual([])
})

test('the README has at most 160 lines', () => {
  expect(text(join(root, 'README.md')).trimEnd().split('\n').length).toBeLessThanOrEqual(160)
})
