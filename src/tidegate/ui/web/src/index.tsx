import { hosted } from "./Host";
import { Pipelines } from "./Pipelines";
import { Ranges } from "./Ranges";
import { Run } from "./Run";
import { addStyle } from "./style";

// The loader of Airflow's UI takes the function of an entry's name, if there is one before it would load the script. So each run
// of the script sets all three, and it does not matter how often it is run, or for which entry.
addStyle();
Object.assign(globalThis, { Tidegate: hosted(Pipelines), "Tidegate ranges": hosted(Ranges), "Tidegate run": hosted(Run) });
