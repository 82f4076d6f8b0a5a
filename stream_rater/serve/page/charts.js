// Charts as SVG. Each has a text that says what it shows, and a table or words beside it.

import { day, tierClass, tierSpans } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 52;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
const LABEL_PX = 14; // The least height of a band that has its name in it.

/** The rating after each change, and a band of two sigma around mu. `changes`: oldest first. */
export function drawCareer(host, changes, name, tiers) {
  if (!changes.length) return empty(host, "No change is kept.");
  const lows = changes.map((each) => Math.min(each.rating, each.mu - 2 * each.sigma));
  const highs = changes.map((each) => Math.max(each.rating, each.mu + 2 * each.sigma));
  const chart = begin(host, Math.min(...lows), Math.max(...highs),
    `Rating of ${name}: ${Math.round(changes[0].rating)} at first, now ` +
    `${Math.round(changes.at(-1).rating)}, over ${changes.length} changes`, tiers);
  const step = chart.width / Math.max(changes.length - 1, 1);
  const at = (i, value) => `${LEFT + i * step},${chart.y(value)}`;
  const upper = changes.map((each, i) => at(i, each.mu + 2 * each.sigma));
  const lower = changes.map((each, i) => at(i, each.mu - 2 * each.sigma)).reverse();
  chart.add("polygon", { class: "band", points: [...upper, ...lower].join(" ") });
  chart.add("polyline", {
    class: "line", points: changes.map((each, i) => at(i, each.rating)).join(" "),
  });
  if (changes.length === 1) {
    chart.add("circle", { class: "bar", cx: LEFT, cy: chart.y(changes[0].rating), r: 4 });
  }
  chart.below(day(changes[0].completed_at), day(changes.at(-1).completed_at));
}

/** The ratings of several players by time. `lines`: [name, changes, oldest first] each. */
export function drawTogether(host, lines, tiers) {
  const known = lines.filter(([, changes]) => changes.length);
  if (!known.length) return empty(host, "No change is kept.");
  const all = known.flatMap(([, changes]) => changes);
  const times = all.map((each) => Date.parse(each.completed_at));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const ratings = all.map((each) => each.rating);
  const chart = begin(host, Math.min(...ratings), Math.max(...ratings),
    known.map(([name, changes]) => `${name}: now ${Math.round(changes.at(-1).rating)}`).join(", "), tiers);
  const x = (time) => LEFT + ((Date.parse(time) - first) / Math.max(last - first, 1)) * chart.width;
  known.forEach(([, changes], i) => {
    const line = changes.map((each) => `${x(each.completed_at)},${chart.y(each.rating)}`);
    chart.add("polyline", { class: `line line-${i}`, points: line.join(" ") });
    const end = changes.at(-1);
    chart.add("circle", { class: `dot dot-${i}`, cx: x(end.completed_at), cy: chart.y(end.rating), r: 4 });
  });
  chart.below(day(new Date(first).toISOString()), day(new Date(last).toISOString()));
}

/** Bars of equal width. `bars`: [number, title, class] each; `ends`: texts below the ends. */
export function drawBars(host, bars, ends, what) {
  if (!bars.length) return empty(host, "Nobody is listed yet.");
  const chart = begin(host, 0, Math.max(1, ...bars.map(([value]) => value)), what);
  const step = chart.width / bars.length;
  bars.forEach(([value, title, kind = ""], i) => {
    const y = chart.y(value);
    const bar = chart.add("rect", {
      class: `bar ${kind}`, x: LEFT + i * step, y, width: Math.max(step - 1, 1), height: chart.floor - y,
    });
    if (title) bar.append(made("title", {}, title));
  });
  chart.below(...ends);
}

/** A small line of ratings, for a row. */
export function sparkline(ratings, what) {
  const [width, height, edge] = [72, 22, 2];
  const low = Math.min(...ratings);
  const span = Math.max(...ratings) - low || 1;
  const step = (width - 2 * edge) / Math.max(ratings.length - 1, 1);
  const svg = made("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", role: "img", "aria-label": what });
  const at = ratings.map((each, i) => [edge + i * step, height - edge - ((each - low) / span) * (height - 2 * edge)]);
  svg.append(made("polyline", { class: "line", points: at.join(" ") }));
  svg.append(made("circle", { class: "bar", cx: at.at(-1)[0], cy: at.at(-1)[1], r: 2 }));
  return svg;
}

/** One bar of several parts. `parts`: [share, class] each. */
export function partedBar(parts, what) {
  const svg = made("svg", {
    viewBox: "0 0 100 4", preserveAspectRatio: "none", class: "parted", role: "img", "aria-label": what,
  });
  let x = 0;
  for (const [share, kind] of parts) {
    svg.append(made("rect", { class: kind, x, y: 0, width: 100 * share, height: 4 }));
    x += 100 * share;
  }
  return svg;
}

function empty(host, text) {
  const message = document.createElement("p");
  message.textContent = text;
  host.replaceChildren(message);
}

function begin(host, low, high, what, tiers = []) {
  const full = { width: host.clientWidth || 600, height: host.clientHeight || 200 };
  const svg = made("svg", { viewBox: `0 0 ${full.width} ${full.height}`, role: "img", "aria-label": what });
  const floor = full.height - BOTTOM;
  const ticks = ticksOf(low, high);
  const bottom = Math.min(low, ticks[0]);
  const top = Math.max(high, ticks.at(-1));
  const y = (value) => floor - ((value - bottom) / (top - bottom)) * (floor - TOP);
  const add = (kind, attributes, text) => svg.appendChild(made(kind, attributes, text));
  const labels = [];
  for (const [name, from, to] of tierSpans(tiers)) {
    if (to <= bottom || from >= top) continue;
    const [above, below] = [y(Math.min(to, top)), y(Math.max(from, bottom))];
    const area = { x: LEFT, y: above, width: full.width - LEFT - RIGHT, height: below - above };
    add("rect", { class: `tier ${tierClass(tiers, name)}`, ...area });
    if (below - above >= LABEL_PX) labels.push([name, above + 12]);
  }
  for (const tick of ticks) {
    add("line", { class: "rule", x1: LEFT, x2: full.width - RIGHT, y1: y(tick), y2: y(tick) });
    add("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, tick.toLocaleString("en"));
  }
  host.replaceChildren(svg);
  return {
    add, y, floor,
    width: full.width - LEFT - RIGHT,
    below(first, last) { // what lies on the chart: the names of tiers, and the texts below it
      for (const [name, y] of labels) add("text", { class: "on", x: LEFT + 6, y }, name);
      add("text", { x: LEFT, y: full.height - 6 }, first);
      if (last !== first) {
        add("text", { x: full.width - RIGHT, y: full.height - 6, "text-anchor": "end" }, last);
      }
    },
  };
}

/** Two to six round numbers that span the values. */
function ticksOf(low, high) {
  const rough = Math.max(high - low, 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].find((each) => each * power >= rough) * power);
  const ticks = [];
  for (let at = Math.floor(low / step) * step; at < high + step; at += step) ticks.push(at);
  return ticks;
}

function made(kind, attributes, text) {
  const found = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  if (text !== undefined) found.textContent = text;
  return found;
}
