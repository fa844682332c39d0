/** The options that other commands are told to use. */
import { placeOptions } from '../../cli/options/busOptions'

test('paths with spaces and quotes are quoted as a shell needs it, plain ones are not', () => {
  expect(placeOptions({ bus: 'lmdb:.troupe' })).toBe('')
  expect(placeOptions({ bus: 'kafka://h:9092,i:9092', dir: '/a/b' })).toBe(' --bus kafka://h:9092,i:9092 --dir /a/b')
  expect(placeOptions({ bus: "lmdb:/my runs/it's" })).toBe(` --bus 'lmdb:/my runs/it'\\''s'`)
  expect(placeOptions({ bus: 'lmdb:.troupe', dir: '/a b' })).toBe(" --dir '/a b'")
})
