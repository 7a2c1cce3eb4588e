#!/usr/bin/env bash
# Prints a folder that holds Playwright and axe, which drive a browser and judge what it shows (some 130 MB);
# see package_folder.sh. The browser itself is that of chromium.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" browser \
    playwright==1.65.2 pyee==13.0.1 greenlet==3.5.6 axe-playwright-python==0.1.8
