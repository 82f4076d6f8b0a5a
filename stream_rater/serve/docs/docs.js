// Shows openapi.json: each operation with its parameters, its examples, and a form to try it.

const TOKEN = "stream-rater-token";

/** An element with attributes and children; a text is a child, never markup. */
function made(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

/** A text whose parts between backticks are code. */
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? made("code", {}, part) : part));

const json = (value) => JSON.stringify(value, null, 1);

function label(text, field) {
  return made("label", {}, `${text} `, field);
}

/** The name of a schema's type, such as `string`, `integer or null`, or that of a component. */
function kind(schema) {
  if (schema.nullable) return `${kind({ ...schema, nullable: false })} or null`;
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return schema.enum.map(json).join(" or ");
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  return schema.type === "array" ? `list of ${kind(schema.items ?? {})}` : schema.type ?? "any";
}

/** A table of the fields of a component of the document. */
function fields(api, name) {
  const schema = api.components.schemas[name];
  const rows = Object.entries(schema.properties ?? {}).map(([field, of]) => made("tr", {},
    made("td", {}, made("code", {}, field)),
    made("td", {}, kind(of) + (schema.required?.includes(field) ? ", required" : "")),
    made("td", {}, ...prose(of.description ?? ""))));
  const heads = ["field", "type", "meaning"].map((each) => made("th", { scope: "col" }, each));
  return made("table", {}, made("thead", {}, made("tr", {}, ...heads)), made("tbody", {}, ...rows));
}

function details(title, ...children) {
  return made("details", {}, made("summary", {}, title), ...children);
}

/** The fields of the components that a schema names, and of those that these name. */
function types(api, schema) {
  const names = [];
  const visit = (part) => {
    if (part === null || typeof part !== "object") return;
    const name = typeof part.$ref === "string" ? part.$ref.split("/").at(-1) : undefined;
    if (name !== undefined && !names.includes(name)) {
      names.push(name);
      visit(api.components.schemas[name]);
    }
    Object.values(part).forEach(visit);
  };
  visit(schema);
  return names.filter((name) => api.components.schemas[name].properties)
    .map((name) => details(name, fields(api, name)));
}

/** Sends the request of a form, and shows the answer. */
async function send(form, { method, path, parameters, output }) {
  const data = new FormData(form);
  const filled = path.replace(/{(\w+)}/g, (_, name) => encodeURIComponent(data.get(name)));
  const url = new URL(filled.slice(1), document.baseURI);
  for (const each of parameters) {
    if (each.in === "query" && data.get(each.name)) url.searchParams.set(each.name, data.get(each.name));
  }
  const token = sessionStorage.getItem(TOKEN);
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  output.textContent = "Waiting for the answer";
  try {
    const answer = await fetch(url, { method, headers, body: data.get("body") ?? undefined });
    const text = await answer.text();
    const shown = answer.headers.get("content-type")?.includes("json") ? json(JSON.parse(text)) : text;
    output.textContent = `${answer.status} ${answer.statusText}\n${shown}`;
  } catch (error) {
    output.textContent = String(error);
  }
}

/** The form that tries an operation. A stream does not end, so it has none. */
function trial(method, path, operation, body) {
  const output = made("pre", { "aria-live": "polite", "aria-label": "The answer", tabindex: "0" });
  const parameters = operation.parameters.filter((each) => each.in !== "header");
  const inputs = parameters.map((each) => label(
    `${each.name}${each.required ? "" : " (may be left out)"}`,
    made("input", { name: each.name, value: each.example ?? "", title: each.description ?? each.name,
                    ...(each.required && { required: "" }) })));
  if (body) {
    inputs.push(label("Body", made("textarea", { name: "body", spellcheck: "false" }, json(body.example))));
  }
  const form = made("form", {}, ...inputs, made("button", {}, "Send"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, { method, path, parameters, output });
  });
  return details("Try it", form, output);
}

function shown(api, method, path, operation) {
  const id = operation.operationId;
  const body = operation.requestBody?.content["application/json"];
  const found = made("section", { id },
    made("h2", {}, made("code", {}, `${method} ${path}`)), made("p", {}, operation.summary));
  for (const each of operation.parameters.filter((one) => one.description)) {
    found.append(made("p", {}, made("code", {}, each.name), ": ", ...prose(each.description)));
  }
  if (body) found.append(details("Body", made("pre", { tabindex: "0" }, json(body.example)), ...types(api, body.schema)));
  const errors = details("Errors", ...types(api, { $ref: "#/components/schemas/Problem" }));
  for (const [status, answer] of Object.entries(operation.responses)) {
    const content = Object.values(answer.content)[0];
    if (status >= "400") errors.append(made("p", {}, `${status}: `, ...prose(answer.description)));
    else if (content.example === undefined) found.append(made("p", {}, `${status}: a stream`));
    else found.append(details(`Answer ${status}`,
      made("pre", { tabindex: "0" }, json(content.example)), ...types(api, content.schema)));
  }
  found.append(errors);
  if (id !== "changes") found.append(trial(method, path, operation, body));
  return found;
}

async function start() {
  const token = document.getElementById("token");
  token.value = sessionStorage.getItem(TOKEN) ?? "";
  token.addEventListener("input", () => sessionStorage.setItem(TOKEN, token.value));
  const api = await (await fetch("openapi.json")).json();
  const all = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, each]) => [method.toUpperCase(), path, each]));
  document.getElementById("list").replaceChildren(...all.map(([method, path, each]) =>
    made("li", {}, made("a", { href: `${location.pathname}#${each.operationId}` }, `${method} ${path}`))));
  document.getElementById("operations").replaceChildren(...all.map((each) => shown(api, ...each)));
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

start().catch((error) => {
  document.getElementById("operations").textContent = `The document cannot be read: ${error.message}`;
});
