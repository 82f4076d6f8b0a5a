// The search for a player, with suggestions: a combobox with a list below it.

import { get } from "./api.js";
import { at, made, points } from "./dom.js";

const SUGGESTIONS = 8;
const WAIT_MS = 120; // After the last letter.

/** Lets a text field suggest players of `ladder()`, and calls `choose(player)`. */
export function suggestIn(input, list, ladder, choose) {
  let timer;
  let active = -1;

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(i) {
    const options = [...list.children];
    active = options.length ? (i + options.length) % options.length : -1;
    options.forEach((each, at) => each.setAttribute("aria-selected", String(at === active)));
    input.setAttribute("aria-activedescendant", options[active]?.id ?? "");
  }

  function take(player) {
    close();
    input.value = "";
    choose(player);
  }

  async function suggest() {
    const [prefix, asked] = [input.value.trim(), ladder()];
    if (!prefix || !asked) return close();
    let players = [];
    try {
      ({ players } = await get(["ladders", asked, "players"], { prefix, limit: SUGGESTIONS }));
    } catch {
      return close(); // a search that is sent says what is wrong
    }
    if (prefix !== input.value.trim() || document.activeElement !== input) return;
    list.replaceChildren(...players.map(({ player, rating }, i) => {
      const option = made("li", "", made("span", "", player), made("span", "soft", points(rating)));
      option.id = `${list.id}-${i}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      option.addEventListener("mousedown", (event) => { event.preventDefault(); take(player); });
      return option;
    }));
    list.hidden = !players.length;
    active = -1;
    input.setAttribute("aria-expanded", String(!list.hidden));
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(suggest, WAIT_MS);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (list.hidden || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    mark(event.key === "ArrowDown" ? active + 1 : Math.max(active, 0) - 1);
  });
  input.form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    take(list.children[active]?.firstChild.textContent ?? input.value.trim());
  });
}

/** The search in the page's head, and the field that compares two players. */
export function startSearch(shown, open) {
  suggestIn(at("search").player, at("search-list"), () => shown.ladder, (player) => open(player));
  suggestIn(at("compare").other, at("compare-list"), () => shown.ladder, (other) => open(shown.player, other));
}
