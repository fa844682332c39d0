/**
 * The page's files: index.html, its script and its style, bundled by dashboard/bundle.js.
 *
 * in   dashboard/page/build        out  bytes and media type by name
 * Invariant: a package carries the bundle. A checkout makes it here when it is missing or older than the page's
 * sources.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { asError, TroupeError } from '../../runtime/errors'

export type PageFiles = ReadonlyMap<string, { readonly bytes: Buffer; readonly type: string }>

const built = join(__dirname, '../page/build')
const types: Readonly<Record<string, string>> = {
  'index.html': 'text/html; charset=utf-8',
  'page.js': 'text/javascript; charset=utf-8',
  'page.css': 'text/css; charset=utf-8',
}

/** Returns the page's files by name. @throws TroupeError dashboard.no_page */
export async function pageFiles(): Promise<PageFiles> {
  await bundleInCheckout()
  const files = Object.entries(types).map(
    ([name, type]) => [name, { bytes: readFileSync(join(built, name)), type }] as const,
  )
  return new Map(files)
}

async function bundleInCheckout(): Promise<void> {
  const bundler = join(__dirname, '../bundle.js')
  if (!existsSync(join(__dirname, '../page/main.ts'))) {
    if (existsSync(join(built, 'page.js'))) return
    throw noPage('the package has no bundle of the page')
  }
  const { bundlePage } = require(bundler) as { bundlePage(out: string): Promise<boolean> }
  try {
    await bundlePage(built)
  } catch (thrown) {
    throw noPage(`the page could not be bundled: ${asError(thrown).message.split('\n')[0]}`)
  }
}

const noPage = (message: string): TroupeError =>
  new TroupeError('dashboard.no_page', {
    ...{ boundary: 'cli', retriable: false, message },
    hint: 'in a checkout: npm run setup; else install troupe again',
  })
