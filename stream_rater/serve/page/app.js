// The page: which part of it is shown, and when each part is requested again.

import { Refused, follow, get, useToken } from "./api.js";
import { showBoard, showNews, showSpread } from "./board.js";
import { addressOf, at, linkTo, replaceIn } from "./dom.js";
import { showOlder, showPlayer, showVersus, showWhy } from "./player.js";
import { startSearch } from "./search.js";
import { chooseSeason, showSeasons } from "./seasons.js";
import { showStart } from "./start.js";
import { known, shown, still } from "./state.js";

const BOARD_MS = 400;
const NEWS_MS = 2_000;
const IN_WORDS = { // what the API refuses, for players
  "unknown-player": "Nobody of this name has played a round that counts on this ladder.",
  "not-ready": "The ratings are still being read. They will be here soon.",
  "too-many-requests": "Too many people ask at once. Wait a moment.",
};
const SPREAD_MS = 5_000;
const LADDERS_MS = 10_000;
const FIRST_LADDER_MS = 1_000;
const AGAIN_MS = 1_000;
const PASSING = ["not-ready", "busy", "index-unavailable", "unreachable"];

let name = document.title; // The service may have another one.
let stream;
let paused = false;

async function showLadders() {
  const { ladders } = await get(["ladders"]);
  const select = at("ladder");
  const all = ["", ...ladders];
  if (String(all) === String([...select.options].map((each) => each.value))) return;
  select.replaceChildren(...all.map((each) => new Option(each || "All ladders", each)));
  select.value = shown.ladder;
}

/** The name, colour and logo that the service was given. */
async function showLook() {
  const look = await (await fetch("page/look.json")).json();
  at("name").textContent = name = look.name;
  document.documentElement.style.setProperty("--brand", look.colour);
  if (look.logo) at("logo").src = "page/logo";
  setTitle();
}

function setTitle() {
  const { ladder, player, other } = shown;
  const parts = [other ? `${player} and ${other}` : player || ladder, name];
  document.title = parts.filter(Boolean).join(" · ");
}

// --- asking ---

const troubles = new Map();

/**
 * Shows a part of the page, or says why it cannot be shown; nothing else stops. Returns whether it is
 * to be tried again, even if nothing changes until then.
 */
async function attempt(part) {
  const { ladder } = shown;
  let again = false;
  try {
    await part();
    troubles.delete(part);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (!still({ ladder })) return false;
    troubles.set(part, error);
    again = PASSING.includes(error.code);
  }
  showTroubles();
  return again;
}

function showTroubles() {
  const all = [...troubles.values()];
  const said = ["unauthorized", ...(showAbsent(all) ? ["unknown-ladder"] : [])];
  const others = all.filter((each) => !said.includes(each.code));
  at("token").hidden = all.every((each) => each.code !== "unauthorized");
  at("trouble").hidden = !others.length;
  const text = [...new Set(others.map((each) => IN_WORDS[each.code] ?? each.message))].join(" ");
  if (at("trouble").textContent !== text) at("trouble").textContent = text;
}

/** Shows the parts of a ladder, or that there is none of this name. Returns whether it does the latter. */
function showAbsent(all) {
  const { ladder } = shown;
  const ladders = [...at("ladder").options].map((each) => each.value).filter(Boolean);
  const absent = ladder && !ladders.includes(ladder) && all.some((each) => each.code === "unknown-ladder");
  for (const each of document.querySelectorAll(".of-ladder")) each.hidden = !ladder || absent;
  at("absent").hidden = !absent;
  const text = `There is no ladder '${ladder}'`;
  if (!absent || (at("absent-name").textContent === text && at("absent-others").children.length === ladders.length)) {
    return absent;
  }
  at("absent-name").textContent = text;
  replaceIn(at("absent-others"), "A ladder is here from its first rated round on. ",
    ...ladders.flatMap((each, i) => [i ? ", " : "There are: ", linkTo(each)]));
  return absent;
}

/** Calls `work` soon, and not more often than every `ms`, nor twice at once. */
function throttled(work, ms) {
  let wanted = false;
  let busy = false;
  return async function ask() {
    wanted = true;
    if (busy) return;
    busy = true;
    while (wanted) {
      wanted = false;
      const again = await attempt(work);
      await new Promise((done) => setTimeout(done, again ? Math.max(ms, AGAIN_MS) : ms));
      wanted ||= again;
    }
    busy = false;
  };
}

/** A part that asks nothing while no ladder is shown. */
const ofLadder = (work) => async () => { if (shown.ladder) await work(); };

const ofPlayer = ofLadder(showPlayer);
const ofVersus = ofLadder(showVersus);
const soon = {
  start: throttled(showStart, SPREAD_MS),
  board: throttled(ofLadder(showBoard), BOARD_MS),
  player: throttled(ofPlayer, BOARD_MS),
  versus: throttled(ofVersus, BOARD_MS),
  why: throttled(ofLadder(showWhy), NEWS_MS),
  news: throttled(ofLadder(showNews), NEWS_MS),
  spread: throttled(ofLadder(async () => { if (await showSpread()) showRest(); }), SPREAD_MS),
  seasons: throttled(ofLadder(() => showSeasons(shown.ladder)), BOARD_MS),
};

/** All that is drawn with the tiers of the ladder. */
function showRest() {
  soon.board();
  soon.player();
  soon.versus();
}

// --- what happens ---

function onChange(change) {
  soon.board();
  soon.spread();
  soon.news();
  if (![shown.player, shown.other].includes(change.player)) return;
  soon.player();
  soon.versus();
  soon.why();
}

function showAll() {
  soon.spread();
  soon.news();
  showRest();
  soon.why();
  soon.seasons();
}

function setStatus(text) {
  at("status").textContent = text;
  at("status").className = text;
}

function connect() {
  stream?.close();
  stream = undefined;
  if (paused || !shown.ladder) return setStatus(paused ? "paused" : "live");
  stream = follow(shown.ladder, { onChange, reset: showAll, state: setStatus });
}

function openAddress() {
  if (location.hash && !location.hash.startsWith("#/")) return; // a link within the page
  const [ladder = "", player = "", other = ""] = location.hash.replace(/^#\//, "").split("/").map(decoded);
  const moved = ladder !== shown.ladder;
  Object.assign(shown, { ladder, player, other });
  setTitle();
  document.body.className = other ? "versus" : player ? "player" : ladder ? "ladder" : "start";
  at("start").hidden = Boolean(ladder);
  at("ladder").value = ladder;
  if (moved) {
    troubles.clear();
    for (const each of ["past", "player", "versus"]) at(each).hidden = true;
    Object.assign(shown, { cursor: undefined, around: undefined });
    Object.assign(known, { tiers: [], newest: undefined });
    soon.spread();
    soon.news();
    soon.seasons();
  }
  showTroubles();
  if (moved || !ladder) connect();
  soon.start();
  soon.board();
  soon.why();
  attempt(ofPlayer).then((again) => (again ? soon.player() : at("player").hidden || at("player-name").focus()));
  attempt(ofVersus).then((again) => (again ? soon.versus() : at("versus").hidden || at("versus-name").focus()));
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function lookForLadders() {
  await attempt(showLadders);
  if (!paused) soon[shown.ladder ? "seasons" : "start"](); // a season may have ended
  setTimeout(lookForLadders, at("ladder").options.length > 1 ? LADDERS_MS : FIRST_LADDER_MS);
}

function turnSeasonTo(season, cursor) {
  chooseSeason(season, cursor);
  soon.seasons();
}

function turnTo(cursor, around) {
  Object.assign(shown, { cursor, around });
  soon.board();
}

at("ladder").addEventListener("change", (event) => {
  location.hash = event.target.value ? addressOf(event.target.value) : "#/";
});
startSearch(shown, (player, other = "") => {
  location.hash = addressOf(...[shown.ladder, player, other].filter(Boolean));
});
at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(event.target.token.value);
  attempt(showLadders).then(connect).then(showAll).then(soon.start);
});
at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  connect();
  if (!shown.ladder) soon.start();
});
at("board-first").addEventListener("click", () => turnTo(undefined, undefined));
at("board-next").addEventListener("click", (event) => turnTo(event.target.dataset.cursor, undefined));
at("past-season").addEventListener("change", (event) => turnSeasonTo(event.target.value));
at("past-first").addEventListener("click", () => turnSeasonTo(at("past-season").value));
at("past-next").addEventListener("click", (event) => {
  turnSeasonTo(at("past-season").value, event.target.dataset.cursor);
});
at("card").addEventListener("error", () => { at("player-card").hidden = true; }); // it has no token
at("card").addEventListener("load", () => { at("player-card").hidden = false; });
at("player-older").addEventListener("click", () => attempt(showOlder));
at("player-around").addEventListener("click", (event) => {
  event.preventDefault();
  turnTo(undefined, shown.player);
  at("board").scrollIntoView();
});
addEventListener("hashchange", openAddress);
addEventListener("resize", () => shown.ladder && showAll());

showLook();
openAddress();
lookForLadders();
