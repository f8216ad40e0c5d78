"""The compiler: derivative formulas in, kernel source text out.

Everything here runs, and is tested, without torch and without triton. The package
imports none of its modules; name the one you want: `from fuser import entries`.
"""
