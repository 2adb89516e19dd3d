"""Files of somebody who means harm, and damaged ones: nothing runs, hangs or changes, and each is one sentence."""
