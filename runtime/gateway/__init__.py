"""The data port: HTTP/1.1 in, HTTP/1.1 out, bytes relayed as they are."""
