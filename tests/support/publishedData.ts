/**
 * Folder with published problem sets, which are no part of the project: TROUPE_PUBLISHED_DATA, else `shared/data`
 * beside the checkout. If a file is missing, the tests that read it are skipped and print the reason.
 */
import { resolve } from 'node:path'

export const publishedData = process.env.TROUPE_PUBLISHED_DATA ?? resolve(__dirname, '../../../shared/data')
