// Lists the operations of /openapi.json, each with a form that sends a request to this server. Text of the document and of
// responses is only ever inserted as text.

const main = document.getElementById("operations");
const search = document.getElementById("search");
const token = document.getElementById("token");

/// An element with properties and children.
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  Object.assign(element, properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/// The description of a schema in a few words.
function words(api, schema) {
  if (!schema || schema === true) return "any JSON";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const type = [schema.type].flat().filter((word) => word && word !== "null").join(" or ");
  if (type === "array") return `list of ${words(api, schema.items)}`;
  return schema.enum ? schema.enum.join(", ") : type || "any JSON";
}

function parameterRow(api, parameter) {
  const example = parameter.in === "path" || parameter.required ? parameter.example ?? "" : "";
  const input = make("input", {
    name: `${parameter.in}:${parameter.name}`,
    value: example,
    required: parameter.required,
    placeholder: parameter.example === undefined ? words(api, parameter.schema) : `such as ${parameter.example}`,
  });
  input.setAttribute("aria-label", parameter.name);
  const note = parameter.description ? make("div", { className: "hint", textContent: parameter.description }) : null;
  return make("tr", {}, make("td", { textContent: parameter.name }), make("td", {}, input, note));
}

/// The request that a form describes.
function request(operation, form) {
  const values = [...new FormData(form)].filter(([name, value]) => name !== "body" && value !== "");
  const of = (place) => values.filter(([name]) => name.startsWith(`${place}:`)).map(([name, value]) => [name.slice(place.length + 1), value]);
  let path = operation.path;
  for (const [name, value] of of("path")) path = path.replace(`{${name}}`, encodeURIComponent(value));
  const query = new URLSearchParams(of("query")).toString();
  const headers = Object.fromEntries(of("header"));
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  const text = form.elements.body?.value ?? "";
  if (text.trim()) headers["Content-Type"] = /^\s*[{[]/.test(text) ? "application/json" : "application/yaml";
  return { url: path + (query ? `?${query}` : ""), method: operation.method, headers, body: text.trim() ? text : undefined };
}

/// The same request for a shell. The token is not shown.
function curl({ url, method, headers, body }) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const parts = [`curl -X ${method} ${quoted(location.origin + url)}`];
  for (const [name, value] of Object.entries(headers)) {
    parts.push(name === "Authorization" ? `-H "Authorization: Bearer $FERMATA_TOKEN"` : `-H ${quoted(`${name}: ${value}`)}`);
  }
  if (body !== undefined) parts.push(`-d ${quoted(body)}`);
  return parts.join(" \\\n  ");
}

/// JSON with indentation. Numbers keep their digits: the text is not parsed into numbers.
function indented(text) {
  let depth = 0, quoted = false, escaped = false, out = "";
  const line = () => "\n" + "  ".repeat(depth);
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at];
    if (quoted) {
      out += sign;
      if (escaped) escaped = false;
      else if (sign === "\\") escaped = true;
      else if (sign === '"') quoted = false;
    } else if (sign === '"') { quoted = true; out += sign; }
    else if (sign === "{" || sign === "[") {
      const rest = text.slice(at + 1).trimStart();
      if (rest[0] === "}" || rest[0] === "]") { out += sign + rest[0]; at = text.length - rest.length; }
      else { depth += 1; out += sign + line(); }
    } else if (sign === "}" || sign === "]") { depth -= 1; out += line() + sign; }
    else if (sign === ",") out += sign + line();
    else if (sign === ":") out += ": ";
    else if (!/\s/.test(sign)) out += sign;
  }
  return out;
}

async function send(operation, form, output) {
  const button = form.querySelector("button");
  const asked = request(operation, form);
  button.disabled = true;
  output.replaceChildren(make("pre", { textContent: curl(asked) }));
  try {
    const response = await fetch(asked.url, asked);
    const text = await response.text();
    const isJson = (response.headers.get("content-type") ?? "").includes("json") && text.length < 1_000_000;
    const head = [`${response.status} ${response.statusText}`, ...[...response.headers].map(([name, value]) => `${name}: ${value}`)];
    output.append(
      make("pre", { className: response.ok ? "" : "failed", textContent: head.join("\n") }),
      make("pre", { textContent: isJson ? indented(text) : text }),
    );
  } catch (error) {
    output.append(make("pre", { className: "failed", textContent: `no response: ${error.message}` }));
  } finally {
    button.disabled = false;
  }
}

/// The form of an operation. It is made when the operation is opened.
function form(api, operation) {
  const output = make("div", { ariaLive: "polite" });
  const rows = operation.parameters.map((parameter) => parameterRow(api, parameter));
  const content = operation.requestBody?.content["application/json"];
  const example = content?.example === undefined ? "" : JSON.stringify(content.example, null, 2);
  const body = content ? make("textarea", { name: "body", value: example, spellcheck: false, rows: Math.min(20, example.split("\n").length + 1) }) : null;
  body?.setAttribute("aria-label", "body");
  const type = content ? make("p", { className: "hint", textContent: `body: ${words(api, content.schema)}` }) : null;
  const answers = Object.entries(operation.responses).filter(([status]) => status !== "default").map(([status, answer]) => {
    const schema = answer.content?.["application/json"]?.schema;
    return schema ? `${status}: ${words(api, schema)}` : `${status}: no body`;
  });
  const element = make("form", {},
    make("p", { className: "hint", textContent: [operation.description, `Responses: ${answers.join("; ")}`].filter(Boolean).join(" ") }),
    rows.length ? make("table", {}, make("tbody", {}, ...rows)) : null, type, body,
    make("p", {}, make("button", { textContent: "Send" })), output);
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    send(operation, element, output);
  });
  return element;
}

function entry(api, operation) {
  const method = make("span", { className: "method", textContent: operation.method });
  method.style.setProperty("--method", `var(--${operation.method.toLowerCase()})`);
  const details = make("details", { id: operation.operationId }, make("summary", {}, method,
    make("span", { className: "path", textContent: operation.path }), make("span", { className: "what", textContent: operation.summary })));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(form(api, operation));
  });
  return details;
}

function show(api, operations) {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (operation) => wanted.every((word) => `${operation.method} ${operation.path} ${operation.summary} ${operation.operationId}`.toLowerCase().includes(word));
  const sections = api.tags.map((tag) => {
    const entries = operations.filter((operation) => operation.tags.includes(tag.name) && fits(operation)).map((operation) => entry(api, operation));
    return entries.length ? make("section", {}, make("h2", { textContent: tag.name }), make("p", { textContent: tag.description }), ...entries) : null;
  }).filter(Boolean);
  main.replaceChildren(...(sections.length ? sections : [make("p", { textContent: "No operation matches the search." })]));
}

try {
  const api = await (await fetch("/openapi.json")).json();
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, path, method: method.toUpperCase() })));
  search.addEventListener("input", () => show(api, operations));
  show(api, operations);
  const linked = document.getElementById(location.hash.slice(1));
  if (linked) { linked.open = true; linked.scrollIntoView(); }
} catch (error) {
  main.textContent = `The description of the API could not be loaded: ${error.message}`;
}
