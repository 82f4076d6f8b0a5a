// Charts as SVG. Each has a text that says what it shows, and a table beside it on the page.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 52;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;

/** The rating after each change, and a band of two sigma around mu. `changes`: oldest first. */
export function drawCareer(host, changes, name) {
  if (!changes.length) return empty(host, "No change is kept.");
  const lows = changes.map((each) => Math.min(each.rating, each.mu - 2 * each.sigma));
  const highs = changes.map((each) => Math.max(each.rating, each.mu + 2 * each.sigma));
  const chart = begin(host, Math.min(...lows), Math.max(...highs),
    `Rating of ${name}: ${Math.round(changes[0].rating)} at first, now ` +
    `${Math.round(changes.at(-1).rating)}, over ${changes.length} changes`);
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

/** Bars of equal width. `bars`: [number, title] each; `ends`: texts below the first and the last. */
export function drawBars(host, bars, ends, what) {
  if (!bars.length) return empty(host, "Nobody is listed yet.");
  const chart = begin(host, 0, Math.max(1, ...bars.map(([value]) => value)), what);
  const step = chart.width / bars.length;
  bars.forEach(([value, title], i) => {
    const y = chart.y(value);
    const bar = chart.add("rect", {
      class: "bar", x: LEFT + i * step, y, width: Math.max(step - 1, 1), height: chart.floor - y,
    });
    if (title) bar.append(made("title", {}, title));
  });
  chart.below(...ends);
}

function empty(host, text) {
  const message = document.createElement("p");
  message.textContent = text;
  host.replaceChildren(message);
}

function begin(host, low, high, what) {
  const full = { width: host.clientWidth || 600, height: host.clientHeight || 200 };
  const svg = made("svg", { viewBox: `0 0 ${full.width} ${full.height}`, role: "img", "aria-label": what });
  const floor = full.height - BOTTOM;
  const ticks = ticksOf(low, high);
  const bottom = Math.min(low, ticks[0]);
  const span = Math.max(high, ticks.at(-1)) - bottom;
  const y = (value) => floor - ((value - bottom) / span) * (floor - TOP);
  const add = (kind, attributes, text) => svg.appendChild(made(kind, attributes, text));
  for (const tick of ticks) {
    add("line", { class: "rule", x1: LEFT, x2: full.width - RIGHT, y1: y(tick), y2: y(tick) });
    add("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, tick.toLocaleString("en"));
  }
  host.replaceChildren(svg);
  return {
    add, y, floor,
    width: full.width - LEFT - RIGHT,
    below(first, last) {
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

export function day(time) {
  return time ? time.slice(0, 10) : "";
}
