// Which words two texts have in common.
"use strict";

const BAND = 100; // how far the places of equal words may differ, beyond the difference in length

// The pairs of places of a longest common subsequence: [[place in a, place in b], …]. Only a band around the diagonal is
// looked at, so that texts of 6,000 words take milliseconds.
function commonWords(a, b) {
  let first = 0,
    last = 0;
  while (first < a.length && first < b.length && a[first] === b[first]) first++;
  while (last < Math.min(a.length, b.length) - first && a.at(-1 - last) === b.at(-1 - last)) last++;
  const middle = commonInBand(a.slice(first, a.length - last), b.slice(first, b.length - last));
  return [
    ...Array.from({ length: first }, (_, i) => [i, i]),
    ...middle.map(([i, j]) => [i + first, j + first]),
    ...Array.from({ length: last }, (_, i) => [a.length - last + i, b.length - last + i]),
  ];
}

function commonInBand(a, b) {
  const [n, m] = [a.length, b.length];
  const reach = Math.abs(n - m) + BAND;
  const whole = m <= 2 * reach; // the band is all of it
  // cell (i, j) is at i * step + j + first; cells outside of the band stay 0
  const [width, step, first] = whole ? [m + 1, m + 1, 0] : [2 * reach + 3, 2 * reach + 2, reach + 1];
  const length = new Uint16Array((n + 1) * width);
  for (let i = n - 1; i >= 0; i--)
    for (let j = Math.min(m - 1, i + reach); j >= Math.max(0, i - reach); j--) {
      const cell = i * step + j + first;
      length[cell] = a[i] === b[j] ? length[cell + step + 1] + 1 : Math.max(length[cell + step], length[cell + 1]);
    }
  const pairs = [];
  for (let i = 0, j = 0; i < n && j < m;) {
    const cell = i * step + j + first;
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (length[cell + step] >= length[cell + 1]) i++;
    else j++;
  }
  return pairs;
}
