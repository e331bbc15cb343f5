"""Representations of graphs, results and cluster states in a notebook: HTML by templates, small charts in SVG.

In: a graph, a result or a state. Out: HTML without scripts, style sheets or colours of text and background, which fits
light and dark themes and saved notebooks.
"""
