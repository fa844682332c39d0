/** Tables drop whole columns on a narrow terminal. */
import { fitColumns } from '../../../cli/io/fitColumns'

test.each([
  [undefined, [true, true, true, true]],
  [80, [true, true, true, true]],
  [40, [true, true, true, true]],
  [39, [true, false, true, true]],
  [26, [true, false, true, false]],
  [3, [true, false, false, false]],
])('with room for %s, columns go by their importance, the first never', (room, shown) => {
  expect(fitColumns([10, 8, 6, 10], [0, 2, 3, 1], room)).toEqual(shown)
})
