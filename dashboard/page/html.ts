/** Templates as tagged literals: htm over preact. Every value in a template becomes a text node or an attribute. */
import htm from 'htm'
import { h, type VNode } from 'preact'

export const html = htm.bind(h) as (strings: TemplateStringsArray, ...values: unknown[]) => VNode
