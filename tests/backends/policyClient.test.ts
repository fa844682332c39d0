/** A call to a process whose connection has been closed fails by name, and no timer of it goes on. */
import { setTimeout as sleep } from 'node:timers/promises'
import * as grpc from '@grpc/grpc-js'
import { connectPolicy } from '../../backends/policyClient'

const never = new Promise<Error>(() => {})
const connect = () => connectPolicy('trainer', 'unix:/nonexistent/socket', never)
const lost = { code: 'trainer.lost', retriable: true, message: expect.stringContaining('shut down') }

test('a call that begins after the connection was closed is an error to be tried again, and its timer never fires', async () => {
  const client = connect()
  client.close()
  const uncaught = jest.fn()
  process.on('uncaughtException', uncaught)
  await expect(client.unary('Describe', {}, 50)).rejects.toMatchObject(lost)
  await sleep(150)
  process.off('uncaughtException', uncaught)
  expect(uncaught).not.toHaveBeenCalled()
})

test('a stream that begins after the connection was closed is the same error', () => {
  const client = connect()
  client.close()
  expect(() => client.stream('Step')).toThrow(expect.objectContaining(lost))
})

test('a call to a socket that nobody serves is an error to be tried again', async () => {
  const client = connect()
  await expect(client.unary('Describe', {}, 5_000)).rejects.toMatchObject({ code: 'trainer.lost', retriable: true })
  client.close()
})

test('a call that the process does not know says that its code is of another version, and what to do', async () => {
  const server = new grpc.Server()
  const credentials = grpc.ServerCredentials.createInsecure()
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', credentials, (error, bound) => (error ? reject(error) : resolve(bound))),
  )
  const client = connectPolicy('trainer', `127.0.0.1:${port}`, never)
  await expect(client.unary('Describe', {}, 5_000)).rejects.toMatchObject({
    code: 'trainer.failed',
    retriable: false,
    message: expect.stringMatching(/^Describe: .*another version/),
    hint: expect.stringContaining('npm run setup'),
  })
  client.close()
  server.forceShutdown()
})
