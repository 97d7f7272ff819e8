"""Methods derived a second time, as plain loops over clients: GCFL, FedSage, FedStar and FedLIT from their
papers; FedGTA, FedAux, FedTAD and AdaFGL from a summary of their papers and public code.

Each file was written before its author had read the method's implementation, from the paper and, where
it is silent, from the authors' public code. Dense matrices, one client at a time, torch's own optimisers.
What the text leaves open was then taken from the method: the names of parameters, and how AdaFGL draws the
half of the training nodes from which labels spread.
"""
