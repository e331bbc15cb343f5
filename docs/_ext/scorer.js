// How the search of the site orders what it finds: the scores of Sphinx, and what kind of page each is.
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    const place = Scorer.places.find(([start]) => page.startsWith(start));
    return score + (place === undefined ? 0 : place[1]);
  },

  // Pages that answer a question of users come before those that say how and why dbfs is made.
  places: [
    ["how-to/questions", 12],
    ["how-to/", 4],
    ["get-started", 4],
    ["generated/notebooks/", -1],
    ["generated/", -4],
    ["design/", -6],
    ["performance/", -8],
    ["decisions/", -10],
  ],

  // Sphinx's defaults.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
