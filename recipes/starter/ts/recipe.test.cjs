// node --test
const assert = require('node:assert')
const { execFileSync } = require('node:child_process')
const fs = require('node:fs')
const test = require('node:test')

const prices = require('./prices.json')

test('the price list knows every problem', () => {
  for (const line of fs.readFileSync('problems.jsonl', 'utf8').trim().split('\n')) {
    const { problem, answer } = JSON.parse(line)
    const [, count, item] = /^What do (\d+) (\w+)s cost\?$/.exec(problem)
    assert.equal(prices[item] * count, answer)
  }
})

test('the recipe has no problem', () => {
  execFileSync('npx', ['troupe', 'check', 'recipe.ts'])
})
