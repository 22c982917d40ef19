"""What is particular to a type of engine: which targets a pod has, how calls become HTTP, what answers mean.

One module per type. Version differences live here and nowhere else.
"""
