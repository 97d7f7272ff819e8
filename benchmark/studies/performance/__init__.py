"""How fast the suite is: beside its peers, beside the machine's limit, by table; and the page of it."""
