"""Rules of dashboard accounts: roles, invitations, identity-provider groups."""
