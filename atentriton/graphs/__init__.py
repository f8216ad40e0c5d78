"""Graphs of whole functions, and the elementwise regions in them.

    function -> trace -> regions -> programs -> the graph with a call for each region

`trace` records a function as a graph of ATen operators; `tidying` and `lifting` make
it simpler; `regions` finds what can be one kernel; `composing` makes programs of
regions; `replacing` puts their calls in.
"""
