/**
 * Lets this process require the checkout's TypeScript: `require('./register')`, or `node -r …/cli/register.js` for a
 * worker or child. Types are checked by `npm run lint`, never here. The project is named, since the user may be anywhere.
 */
const path = require('node:path')

require('ts-node').register({ transpileOnly: true, project: path.join(__dirname, '../tsconfig.json') })
