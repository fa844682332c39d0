/** Options that commands share: how they are read, and how other commands are told to use them. */
import { placeOptions } from '../../cli/options/busOptions'
import { listenAddress } from '../../cli/options/readers'

test('paths with spaces and quotes are quoted as a shell needs it, plain ones are not', () => {
  expect(placeOptions({ bus: 'lmdb:.troupe' })).toBe('')
  expect(placeOptions({ bus: 'kafka://h:9092,i:9092', dir: '/a/b' })).toBe(' --bus kafka://h:9092,i:9092 --dir /a/b')
  expect(placeOptions({ bus: "lmdb:/my runs/it's" })).toBe(` --bus 'lmdb:/my runs/it'\\''s'`)
  expect(placeOptions({ bus: 'lmdb:.troupe', dir: '/a b' })).toBe(" --dir '/a b'")
})

test('an address to listen on is a port of loopback, or host and port', () => {
  expect(listenAddress('9464')).toEqual({ host: '127.0.0.1', port: 9464 })
  expect(listenAddress('0.0.0.0:9464')).toEqual({ host: '0.0.0.0', port: 9464 })
  expect(listenAddress('[::1]:0')).toEqual({ host: '::1', port: 0 })
  for (const wrong of ['', '65536', 'host', ':1', '::1:9464', 'a b:1', 'http://a:1'])
    expect(() => listenAddress(wrong)).toThrow('HOST:PORT')
})
