/**
 * Folder with published problem sets, which are no part of the project: TROUPE_PUBLISHED_DATA, else `shared/data` beside
 * the checkout. Tests that read them are skipped, and say so, where a file is missing.
 */
import { resolve } from 'node:path'

export const publishedData = process.env.TROUPE_PUBLISHED_DATA ?? resolve(__dirname, '../../../shared/data')
