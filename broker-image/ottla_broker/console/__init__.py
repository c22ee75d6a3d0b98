"""The console: pages in a browser that show the cluster, served on `http.listener`."""
