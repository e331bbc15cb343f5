// Prints the first pages that the site's search finds for each query: node site_search.js SITE QUERY...
const fs = require("fs"), vm = require("vm");
const [site, ...queries] = process.argv.slice(2);
const element = { dataset: {}, childNodes: [], addEventListener: () => {} };
globalThis.document = { getElementById: () => ({}), addEventListener: () => {}, documentElement: element, readyState: "loading" };
globalThis.window = globalThis;
globalThis.localStorage = { setItem: () => {} };
globalThis.SPHINX_HIGHLIGHT_ENABLED = false;
globalThis._ = (text) => text;
globalThis._ready = () => {};
const read = (name) => fs.readFileSync(`${site}/${name}`, "utf8");
const scripts = ["base-stemmer", "english-stemmer", "language_data", "searchtools"].filter((name) => fs.existsSync(`${site}/_static/${name}.js`));
const code = scripts.map((name) => read(`_static/${name}.js`)).join("\n") + "\nglobalThis.Search = Search;";
vm.runInThisContext(code);
vm.runInThisContext(read("searchindex.js"));
for (const query of queries) {
  const found = Search._performSearch(...Search._parseQuery(query)).reverse();
  console.log(JSON.stringify([query, ...found.slice(0, 5).map((result) => result[0] + result[2])]));
}
