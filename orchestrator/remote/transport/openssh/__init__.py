"""What OpenSSH's own files say: settings, keys, certificates and known hosts."""
