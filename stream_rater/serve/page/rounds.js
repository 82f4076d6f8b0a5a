// Rounds in words: the latest ones, upsets, climbers, and the matches of a player.

import { ago, cell, count, linkTo, made, points, replaceIn, signed, textRow } from "./dom.js";

const NAMED = 3; // The most players of a side who are named.
const MEAN = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;

/** The players of a round by rank: [[rank, players]], those who did not finish last. */
function places({ players }) {
  const found = new Map();
  for (const each of players) found.set(each.rank, [...(found.get(each.rank) ?? []), each]);
  return [...found].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity));
}

/** Whether a round was between two sides that did not draw: two players, or two teams of one size. */
function isMatch(round) {
  const [first, second, ...others] = places(round);
  return !round.more && !others.length && first[0] === 1 && Boolean(second) && [2, null].includes(second[0])
    && first[1].length === second[1].length;
}

/** Names with links, such as "ann, bob and 3 more". */
export function names(ladder, players) {
  const shown = players.slice(0, NAMED).flatMap((each, i) => [i ? ", " : "", linkTo(ladder, each.player)]);
  const rest = players.length - NAMED;
  return made("span", "", ...shown, rest > 0 ? ` and ${rest} more` : "");
}

/** What happened in a round, in one sentence. */
function sentence(ladder, round) {
  const order = places(round);
  if (isMatch(round)) {
    return [names(ladder, order[0][1]), " beat ", names(ladder, order[1][1])];
  }
  if (order.length === 1 && round.players.length === 2) {
    return [linkTo(ladder, round.players[0].player), " and ", linkTo(ladder, round.players[1].player), " drew"];
  }
  if (order.length === 1) return [names(ladder, round.players), round.players.length > 1 ? " were level" : " played"];
  const others = round.players.length - order[0][1].length;
  return [names(ladder, order[0][1]), ` won against ${count(others)}${round.more ? " and more" : ""}`];
}

function list(host, rows, nothing) {
  const items = rows.map((content) => made("li", "", ...content));
  replaceIn(host, ...(items.length ? items : [made("li", "soft", nothing)]));
}

/** `rounds`: [ladder, round] each, newest first; `many`: whether they are of several ladders. */
export function showLatest(host, rounds, many = false) {
  list(host, rounds.map(([ladder, round]) => [
    made("span", "", ...sentence(ladder, round)), " ",
    made("span", "soft", ...(many ? [`${ladder} · `] : []), ago(round.completed_at)),
  ]), "No round yet.");
}

/** The players who have gained most in these rounds. */
export function showClimbers(host, rounds, many = false) {
  const gains = new Map();
  for (const [ladder, { players }] of rounds) {
    for (const { player, rating, previous_rating: before } of players) {
      const key = JSON.stringify([ladder, player]);
      gains.set(key, (gains.get(key) ?? 0) + rating - before);
    }
  }
  const best = [...gains].filter(([, gain]) => gain >= 1).sort(([, a], [, b]) => b - a).slice(0, 5);
  list(host, best.map(([key, gain]) => {
    const [ladder, player] = JSON.parse(key);
    return [linkTo(ladder, player), " ", signed(gain), ...(many ? [made("span", "soft", ` ${ladder}`)] : [])];
  }), "Nobody has gained points lately.");
}

/** The rounds whose winners were rated lowest, compared with those they beat. */
export function showUpsets(host, rounds, many = false) {
  const upsets = rounds.map(([ladder, round]) => {
    const [first, ...others] = places(round);
    const beaten = others.flatMap(([, players]) => players);
    if (!beaten.length) return [0];
    const before = (players) => MEAN(players.map((each) => each.previous_rating));
    return [before(beaten) - before(first[1]), ladder, round];
  }).filter(([gap]) => gap >= 1).sort(([a], [b]) => b - a).slice(0, 5);
  list(host, upsets.map(([gap, ladder, round]) => [
    made("span", "", ...sentence(ladder, round)), " ",
    made("span", "soft", `rated ${points(gap)} lower${many ? ` · ${ladder}` : ""}`),
  ]), "No underdog has won lately.");
}

const ORDINAL = new Intl.PluralRules("en", { type: "ordinal" });
const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };
const ordinal = (rank) => `${rank}${ENDINGS[ORDINAL.select(rank)]}`;

/** How a player came out of a round, and who else was in it: [kind, result, company]. */
function outcome(ladder, player, round) {
  const own = round.players.find((each) => each.player === player);
  const others = round.players.filter((each) => each.player !== player);
  const place = own.rank === null ? "not finished" : ordinal(own.rank);
  if (!others.length) return ["", place, ["the others' histories no longer have it"]];
  if (isMatch(round)) {
    const side = (level) => others.filter((each) => (each.rank === own.rank) === level);
    const won = own.rank !== null && others.every((each) => each.rank === null || each.rank >= own.rank);
    const mates = side(true).length ? [" with ", names(ladder, side(true))] : [];
    return [won ? "up" : "down", won ? "won" : "lost", ["against ", names(ladder, side(false)), ...mates]];
  }
  const drew = others.length === 1 && others[0].rank === own.rank && own.rank === 1;
  if (drew) return ["", "drew", ["against ", names(ladder, others)]];
  const of = round.more || own.rank === null ? "" : ` of ${round.players.length}`;
  return ["", place + of, [names(ladder, others)]];
}

/** A row of the table of a player's matches. */
export function matchRow(ladder, player, round) {
  const own = round.players.find((each) => each.player === player);
  const [kind, result, company] = outcome(ladder, player, round);
  const found = textRow(
    cell(ago(round.completed_at)), cell(made("span", kind, result)), made("td", "", ...company),
    cell(signed(own.rating - own.previous_rating), "number"), cell(points(own.rating), "number wide"),
  );
  found.title = `round ${round.round_id}`;
  return found;
}

/** What these rounds did to a player's rating, as lines of a list. */
export function swings(ladder, player, rounds) {
  const moves = rounds.map((round) => {
    const own = round.players.find((each) => each.player === player);
    return [own.rating - own.previous_rating, round];
  }).sort(([a], [b]) => b - a);
  const [ups, downs] = [1, -1].map((sign) => moves.filter(([delta]) => sign * delta > 0).length);
  const line = (kind, [delta, round]) => {
    const [, result, company] = outcome(ladder, player, round);
    const when = ago(round.completed_at);
    return made("li", "", `The greatest ${kind}, `, signed(delta), ", came ", when, `: ${result}, `, ...company, ".");
  };
  return [
    made("li", "", `${ups} of the last ${count(rounds.length)} rounds raised the rating, ${downs} lowered it.`),
    ...(ups ? [line("gain", moves[0])] : []), ...(downs ? [line("loss", moves.at(-1))] : []),
  ];
}

/** How often the first of two players was ahead, level and behind in rounds that both played. */
export function between(rounds, player, other) {
  const found = [0, 0, 0];
  for (const { players } of rounds) {
    const [one, two] = [player, other].map((name) => players.find((each) => each.player === name));
    if (!one || !two) continue;
    const [a, b] = [one.rank ?? Infinity, two.rank ?? Infinity];
    found[a < b ? 0 : a > b ? 2 : 1] += 1;
  }
  return found;
}
