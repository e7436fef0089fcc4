"""How long an iteration takes, before it is measured: Li's model of what ranks do, and its inputs with their source."""
