"""Methods derived a second time, as plain loops over clients: dense matrices, torch's own optimisers.

Each file was written before its author had read the method's implementation, from the paper where its text
was at hand, else from a summary of the paper, and from the authors' public code where these are silent; its
first lines say which. What all of them leave open was then taken from the method: the names of parameters,
what is drawn, and what the method's docstring gives as its own reading.
"""
