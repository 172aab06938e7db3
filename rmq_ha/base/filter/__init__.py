"""SQL92 expressions over a message's properties, as consumers subscribe with them.

Enter by `selector`: text becomes tokens, a tree, and a function of the properties. Length, depth
and number of terms are bounded, because expressions come from strangers. Spec: remoting.md.
"""
