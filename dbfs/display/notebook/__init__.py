"""How graphs, results and the cluster show themselves in a notebook: HTML by templates, small charts in SVG.

No script, no style sheet, no colour of text or ground: what is shown fits light and dark themes, and a saved notebook.
"""
