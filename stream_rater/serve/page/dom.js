// Small pieces of the page. Ids are the texts of anybody: they only ever become text nodes.

export const at = (id) => document.getElementById(id);
export const points = (value) => value.toFixed(0);
export const count = (value) => value.toLocaleString("en");
export const addressOf = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
export const day = (time) => (time ? time.slice(0, 10) : "");

/** An element with a class and content: texts and elements. */
export function made(kind, className, ...content) {
  const found = document.createElement(kind);
  if (className) found.className = className;
  found.append(...content);
  return found;
}

export const cell = (content, kind = "") => made("td", kind, content);
export const textRow = (...cells) => made("tr", "", ...cells);

/** A link to a ladder, or to a player of it. */
export function linkTo(...parts) {
  const found = made("a", "", parts.at(-1));
  found.href = addressOf(...parts);
  return found;
}

/** A change of a rating, with its sign and colour. */
export function signed(delta, title) {
  const whole = Math.round(delta);
  const kind = whole > 0 ? "up" : whole < 0 ? "down" : "";
  const found = made("span", kind, `${whole > 0 ? "+" : whole < 0 ? "−" : "±"}${Math.abs(whole)}`);
  if (title) found.title = title;
  return found;
}

/** How long ago a time was, in words. */
export function ago(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  const found = made("time", "soft", "");
  for (const [unit, length, most] of [["minute", 60, 60], ["hour", 3600, 24], ["day", 86_400, 60]]) {
    const whole = Math.floor(seconds / length);
    if (whole >= most) continue;
    found.textContent = whole ? `${whole} ${unit}${whole > 1 ? "s" : ""} ago` : "just now";
    break;
  }
  found.textContent ||= day(time);
  [found.dateTime, found.title] = [time, time];
  return found;
}

/** Replaces what an element contains. A link in it that has the focus keeps it. */
export function replaceIn(host, ...content) {
  const focused = host.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  host.replaceChildren(...content);
  if (focused === null) return;
  const again = [...host.querySelectorAll("a")].find((each) => each.getAttribute("href") === focused);
  again?.focus({ preventScroll: true });
}

export function setFacts(list, facts) {
  list.replaceChildren(...Object.entries(facts).map(
    ([name, value]) => made("div", "", made("dt", "", name), made("dd", "", value)),
  ));
}

// --- tiers: [{name, from, hysteresis}], from the lowest to the highest ---

const COLOURS = 8;

/** The class with the colour of a tier, by its place among the tiers. */
export function tierClass(tiers, name) {
  const i = tiers.findIndex((each) => each.name === name);
  return `tier-${tiers.length > COLOURS ? Math.floor((i * COLOURS) / tiers.length) : i}`;
}

export function badge(tiers, name) {
  return made("span", `badge ${tierClass(tiers, name)}`, name);
}

/** How long a tier is kept below its first rating, in words. */
export function kept({ from, hysteresis }) {
  if (hysteresis.rounds) return `, kept for ${count(hysteresis.rounds)} rounds after the promotion`;
  return hysteresis ? `, kept down to ${points(from - hysteresis)}` : "";
}

/** A rating in whole points, but not rounded up to a bound of a tier that it does not reach. */
export function pointsIn(tiers, rating) {
  const bounds = tiers.flatMap(({ from, hysteresis }) => (from === null ? [] : [from, from - hysteresis]));
  return points(bounds.some((each) => rating < each && each <= Math.round(rating)) ? Math.floor(rating) : rating);
}

/** The tiers with the ratings in which they lie: [name, low, high]. */
export function tierSpans(tiers) {
  return tiers.map((each, i) => [each.name, each.from ?? -Infinity, tiers[i + 1]?.from ?? Infinity]);
}
