/**
 * Generates policy_pb2.py with its type stub and policy_pb2_grpc.py from policy.proto, by the venv's grpcio-tools.
 * The files are made in a temporary folder and renamed into place, so an engine that starts meanwhile sees whole files.
 */
const fs = require('node:fs')
const path = require('node:path')
const { digestOf, readStamp, writeStamp } = require('./say')
const { runTool } = require('./tool')

function step(where) {
  const proto = path.join(where.policy, 'proto')
  const target = path.join(where.policy, 'troupe_policy/generated')
  const stamp = path.join(target, '.troupe-setup.json')
  // The stamp also covers requirements.txt, because the generated code checks the version of grpcio that is pinned
  // there.
  const inputs = [path.join(proto, 'policy.proto'), path.join(where.policy, 'requirements.txt'), __filename]
  const files = ['policy_pb2.py', 'policy_pb2.pyi', 'policy_pb2_grpc.py', '__init__.py']
  return {
    name: 'generated code',
    says: 'Python of policy.proto',
    isDone: () =>
      readStamp(stamp).digest === digestOf(inputs) && files.every(file => fs.existsSync(path.join(target, file))),
    async run() {
      const digest = digestOf(inputs)
      fs.mkdirSync(target, { recursive: true })
      const fresh = fs.mkdtempSync(path.join(target, '.new-'))
      try {
        const outs = ['--python_out', '--pyi_out', '--grpc_python_out'].map(flag => `${flag}=${fresh}`)
        const args = ['-m', 'grpc_tools.protoc', '-I', proto, ...outs, 'policy.proto']
        await runTool('generated code', path.join(where.venv, 'bin/python'), args, { cwd: proto, where })
        fs.writeFileSync(
          path.join(fresh, '__init__.py'),
          '"""Generated from proto/policy.proto by set-up. Do not edit."""\n',
        )
        // protoc imports policy_pb2 as a top-level module, but it lies inside a package: the import is made relative.
        const grpc = path.join(fresh, 'policy_pb2_grpc.py')
        const text = fs.readFileSync(grpc, 'utf8')
        fs.writeFileSync(grpc, text.replace(/^import policy_pb2 as/m, 'from . import policy_pb2 as'))
        for (const file of files) fs.renameSync(path.join(fresh, file), path.join(target, file))
      } finally {
        fs.rmSync(fresh, { recursive: true, force: true })
      }
      writeStamp(stamp, { digest })
    },
  }
}

module.exports = { step }
