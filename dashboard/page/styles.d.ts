/** Style sheets that esbuild bundles into page.css. */
declare module '*.css'
