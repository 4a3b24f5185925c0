// Transcripts, shaded by the probability that each character was not said.
//
// The shades are highlights that are painted over unbroken text, so that Arabic letters join and Indic letters combine
// across shades. A grapheme cluster has one shade, the darkest of its parts. Only words are elements of their own,
// because letters do not join across a space.
"use strict";

const highlights =
  window.Highlight && CSS.highlights
    ? Array.from({ length: 10 }, (_, level) => {
        const highlight = new Highlight();
        if (level > 0) CSS.highlights.set(`bypass-${level}`, highlight);
        return highlight;
      })
    : null; // older browsers: words are shaded as a whole

const BLOCK = 200; // words

const segmenter = Intl.Segmenter ? new Intl.Segmenter(undefined, { granularity: "grapheme" }) : null;

// The index of each grapheme cluster of a text, and the index after the last.
function clusterEdges(text) {
  const edges = segmenter
    ? Array.from(segmenter.segment(text), (part) => part.index)
    : Array.from(text.matchAll(/\P{M}[\p{M}\u200c\u200d]*/gsu), (match) => match.index);
  return [...edges, text.length];
}

const edgesOf = (row) => (row.edges ??= clusterEdges(row.text));

// Parts of the text with the same shade: [begin, stop, level]. Parts of level 0 are not included.
function shadesOf(row) {
  if (row.shades) return row.shades;
  row.shades = [];
  if (/^0*$/.test(row.shade)) return row.shades;
  const edges = edgesOf(row);
  for (let i = 0; i + 1 < edges.length; i++) {
    let level = 0;
    for (let k = edges[i]; k < edges[i + 1]; k++) level = Math.max(level, Number(row.shade[k]));
    const last = row.shades.at(-1);
    if (level > 0 && last && last[1] === edges[i] && last[2] === level) last[1] = edges[i + 1];
    else if (level > 0) row.shades.push([edges[i], edges[i + 1], level]);
  }
  return row.shades;
}

// Fill an element with the row's transcript, starting at the character `from`. Words are elements with `data-word`.
// `before(number)` may return an element that is put before the word of this number (or at the end, if number is the
// number of words).
// Not much more than `length` characters are shown. Long transcripts are shown in blocks, of which the browser lays out the
// visible ones only.
function showTranscript(element, row, from = 0, before = () => null, length = Infinity) {
  unshade(element);
  const nodes = []; // [text node, its first character in the transcript]
  const parts = from > 0 ? ["… "] : [];
  const blocks = [];
  const addText = (begin, stop) => {
    const node = document.createTextNode(row.text.slice(begin, stop));
    nodes.push([node, begin]);
    return node;
  };
  let position = from;
  row.words.forEach((word, number) => {
    if (word.begin < from || word.begin > from + length) return;
    if (word.begin > position) parts.push(addText(position, word.begin));
    if (number % BLOCK === 0 && number > 0) blocks.push(block(parts.splice(0)));
    parts.push(before(number));
    const level = Math.min(9, Math.floor(10 * word.bypass));
    const span = make("span", { class: `word doubt-${level}`, "data-word": number }, addText(word.begin, word.stop));
    if (!highlights) span.dataset.shade = Math.max(...row.shade.slice(word.begin, word.stop));
    parts.push(span);
    position = word.stop;
  });
  if (position < row.text.length && length === Infinity) parts.push(addText(position, row.text.length));
  parts.push(before(row.words.length));
  element.replaceChildren(...blocks, ...(blocks.length ? [block(parts)] : parts.filter(Boolean)));
  shade(element, row, nodes);
}

const block = (parts) => make("span", { class: "block" }, ...parts);

function shade(element, row, nodes) {
  if (!highlights) return;
  element.shades = [];
  const shades = shadesOf(row);
  let next = 0; // nodes and shades are both in the order of the text
  for (const [node, begin] of nodes) {
    const stop = begin + node.length;
    while (next < shades.length && shades[next][1] <= begin) next++;
    for (let i = next; i < shades.length && shades[i][0] < stop; i++) {
      const [first, last, level] = shades[i];
      const range = new StaticRange({
        startContainer: node,
        startOffset: Math.max(first, begin) - begin,
        endContainer: node,
        endOffset: Math.min(last, stop) - begin,
      });
      highlights[level].add(range);
      element.shades.push([level, range]);
    }
  }
}

// Remove the shades of an element. Call it before its text is removed.
function unshade(element) {
  for (const [level, range] of element.shades ?? []) highlights[level].delete(range);
  element.shades = [];
}
